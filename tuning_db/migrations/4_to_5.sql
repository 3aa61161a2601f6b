-- Version 5 seals what it holds: digests that find any altered byte, and signatures that say who vouches for a trial.
-- The program computes the digests after the last migration. Rows of older files are signed by nobody.
ALTER TABLE nest ADD COLUMN seal TEXT NOT NULL DEFAULT '';
ALTER TABLE trial ADD COLUMN seal TEXT NOT NULL DEFAULT '';
ALTER TABLE trial ADD COLUMN signer TEXT NOT NULL DEFAULT '';
ALTER TABLE trial ADD COLUMN signature TEXT NOT NULL DEFAULT '';
ALTER TABLE pin ADD COLUMN seal TEXT NOT NULL DEFAULT '';
