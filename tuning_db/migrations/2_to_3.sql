-- Version 3 keeps what the compiler and the driver said of a kernel: registers, spills, occupancy.
ALTER TABLE trial ADD COLUMN report TEXT NOT NULL DEFAULT '';
