-- Why what was allowed could not be done all the same: the host's or the
-- network's fault, not a verdict.

ALTER TABLE verdicts ADD COLUMN failure TEXT NOT NULL DEFAULT '';
