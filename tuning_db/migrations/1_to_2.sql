-- Version 2 remembers how exact a result was.
ALTER TABLE trial ADD COLUMN max_error REAL NOT NULL DEFAULT 0;
