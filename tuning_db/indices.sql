-- Indices that came after files of version 5 were written: made when a file is opened for writing, and never needed for an answer to be right.
-- Look-ups find what somebody vouches for without passing over all that waits.
CREATE INDEX IF NOT EXISTS trial_of_signer ON trial (problem_id, device_id, signer) WHERE status = 'ok' AND kernel_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS trial_of_seal ON trial (seal) WHERE status = 'ok' AND kernel_id IS NOT NULL;
