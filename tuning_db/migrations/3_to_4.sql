-- Version 4 knows trials that could not be proved, and which revision of the code generator made and checked a kernel.
-- SQLite cannot change a CHECK: the table is made anew. Foreign keys are off meanwhile, or dropping it would remove pins.
CREATE TABLE trial_of_version_4 (
  id         INTEGER PRIMARY KEY,
  device_id  INTEGER NOT NULL REFERENCES device (id),
  problem_id INTEGER NOT NULL REFERENCES problem (id),
  kernel_id  INTEGER REFERENCES kernel (id),
  status     TEXT NOT NULL CHECK (status IN ('ok', 'illegal', 'compile_error', 'wrong', 'crash', 'timeout', 'slow', 'infeasible', 'unproved')),
  median_ms  REAL NOT NULL,
  max_error  REAL NOT NULL DEFAULT 0,
  created    TEXT NOT NULL,
  toolchain  TEXT NOT NULL,
  reason     TEXT NOT NULL,
  samples    BLOB NOT NULL,
  steps      TEXT NOT NULL,
  report     TEXT NOT NULL DEFAULT '',
  revision   INTEGER NOT NULL DEFAULT 0,
  checked    INTEGER NOT NULL DEFAULT 0
);
INSERT INTO trial_of_version_4 (id, device_id, problem_id, kernel_id, status, median_ms, max_error, created, toolchain, reason, samples, steps, report)
  SELECT id, device_id, problem_id, kernel_id, status, median_ms, max_error, created, toolchain, reason, samples, steps, report FROM trial;
DROP TABLE trial;
ALTER TABLE trial_of_version_4 RENAME TO trial;
CREATE INDEX trial_of_problem ON trial (problem_id, device_id, created);
CREATE INDEX trial_fastest ON trial (problem_id, device_id, median_ms) WHERE status = 'ok' AND kernel_id IS NOT NULL;
CREATE INDEX trial_of_kernel ON trial (kernel_id);
CREATE INDEX trial_of_device ON trial (device_id);
