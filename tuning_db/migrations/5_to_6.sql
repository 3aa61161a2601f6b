-- Version 6 keeps what was proved of a trial's code when it was compiled. Older trials have no certificate, and their seals stay as they are.
CREATE TABLE certificate (
  digest TEXT PRIMARY KEY,
  text   BLOB NOT NULL
) WITHOUT ROWID;
ALTER TABLE trial ADD COLUMN certificate TEXT NOT NULL DEFAULT '';
CREATE INDEX trial_of_certificate ON trial (certificate) WHERE certificate != '';
