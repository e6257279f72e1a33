-- New commits that change what is protected, and references that were deleted
-- or rewritten, while a session lived. Lists are JSON.

ALTER TABLE sessions ADD COLUMN commits TEXT NOT NULL DEFAULT '[]';
ALTER TABLE sessions ADD COLUMN moved TEXT NOT NULL DEFAULT '[]';
