-- Tuning database, schema version 6. Every statement here runs once, in one transaction, when a file is created.
-- Older files reach this schema through migrations/.

CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL
) WITHOUT ROWID;

-- Full identity of a device that measured. `key` is what look-ups compare: kind/arch/units.
CREATE TABLE device (
  id      INTEGER PRIMARY KEY,
  key     TEXT NOT NULL,
  kind    TEXT NOT NULL,
  name    TEXT NOT NULL,
  arch    TEXT NOT NULL,
  units   INTEGER NOT NULL,
  details TEXT NOT NULL,          -- JSON: clocks, caches, memory, driver
  UNIQUE (key, name, details)
);

CREATE TABLE nest (
  id     INTEGER PRIMARY KEY,
  digest TEXT NOT NULL UNIQUE,
  json   TEXT NOT NULL,
  seal   TEXT NOT NULL DEFAULT '' -- BLAKE2b-256 of digest and json
);

-- A nest with values for its sizes. `sizes` repeats problem_size as canonical text ("cols=1024,rows=4096"): one key for
-- the exact look-up; the rows serve the nearest one.
CREATE TABLE problem (
  id      INTEGER PRIMARY KEY,
  nest_id INTEGER NOT NULL REFERENCES nest (id),
  op      TEXT NOT NULL,
  variant TEXT NOT NULL,
  sizes   TEXT NOT NULL,
  UNIQUE (op, variant, sizes, nest_id)
);

CREATE TABLE problem_size (
  problem_id INTEGER NOT NULL REFERENCES problem (id) ON DELETE CASCADE,
  name       TEXT NOT NULL,
  value      INTEGER NOT NULL CHECK (value > 0),
  PRIMARY KEY (problem_id, name)
) WITHOUT ROWID;

-- Code once, however many trials measured it. `valid` repeats the recipe's size constraints, so that look-ups need not
-- read recipes; `code` comes last because SQLite walks through a row to reach a column.
CREATE TABLE kernel (
  id           INTEGER PRIMARY KEY,
  hash         TEXT NOT NULL,     -- BLAKE2b-256 of code and recipe
  architecture TEXT NOT NULL,
  valid        TEXT NOT NULL,     -- JSON
  recipe       TEXT NOT NULL,     -- JSON
  code         BLOB NOT NULL,     -- zstd
  UNIQUE (hash, architecture)
);

CREATE TABLE trial (
  id         INTEGER PRIMARY KEY,
  device_id  INTEGER NOT NULL REFERENCES device (id),
  problem_id INTEGER NOT NULL REFERENCES problem (id),
  kernel_id  INTEGER REFERENCES kernel (id),
  status     TEXT NOT NULL CHECK (status IN ('ok', 'illegal', 'compile_error', 'wrong', 'crash', 'timeout', 'slow', 'infeasible', 'unproved')),
  median_ms  REAL NOT NULL,
  max_error  REAL NOT NULL DEFAULT 0,  -- worst |result - reference| / (1 + |reference|)
  created    TEXT NOT NULL,            -- ISO 8601, UTC
  toolchain  TEXT NOT NULL,
  reason     TEXT NOT NULL,
  samples    BLOB NOT NULL,            -- milliseconds, little-endian doubles, in measuring order
  steps      TEXT NOT NULL,            -- JSON
  report     TEXT NOT NULL DEFAULT '', -- JSON: what the compiler and the driver said of the kernel; '' for nothing
  revision   INTEGER NOT NULL DEFAULT 0,  -- of the code generator that made the code; 0: before revisions were counted
  checked    INTEGER NOT NULL DEFAULT 0,  -- last revision whose proofs and checks the kernel passed; 0: none, it is not served
  seal       TEXT NOT NULL DEFAULT '', -- BLAKE2b-256 of all that the trial says, its device, problem and kernel included
  signer     TEXT NOT NULL DEFAULT '', -- Ed25519 public key of who signed the seal; '' for nobody
  signature  TEXT NOT NULL DEFAULT '',
  certificate TEXT NOT NULL DEFAULT '' -- digest of what was proved of the code when it was compiled; '' for records of older programs
);

-- What was proved, once by content. Imported records have their digest alone: proving again gives the text.
CREATE TABLE certificate (
  digest TEXT PRIMARY KEY,  -- BLAKE2b-256 of the text
  text   BLOB NOT NULL      -- JSON, zstd
) WITHOUT ROWID;

-- Trials preferred over faster ones.
CREATE TABLE pin (
  trial_id INTEGER PRIMARY KEY REFERENCES trial (id) ON DELETE CASCADE,
  seal     TEXT NOT NULL DEFAULT '' -- BLAKE2b-256 of the trial's number and seal
);

CREATE INDEX trial_of_problem ON trial (problem_id, device_id, created);
CREATE INDEX trial_fastest ON trial (problem_id, device_id, median_ms) WHERE status = 'ok' AND kernel_id IS NOT NULL;
CREATE INDEX trial_of_kernel ON trial (kernel_id);
CREATE INDEX problem_of_nest ON problem (nest_id);
CREATE INDEX trial_of_device ON trial (device_id);
CREATE INDEX trial_of_certificate ON trial (certificate) WHERE certificate != '';
