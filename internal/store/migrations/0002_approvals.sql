-- What a person has approved: a repository's requests, by exactly their
-- content. The digest is of the expanded effective policy.

CREATE TABLE approvals (
    uid        INTEGER NOT NULL,
    repository TEXT NOT NULL,   -- canonical path and common git directory
    digest     TEXT NOT NULL,
    time       INTEGER NOT NULL,
    PRIMARY KEY (uid, repository, digest)
) STRICT, WITHOUT ROWID;
