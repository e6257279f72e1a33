-- What undoes a sandbox that was begun before anybody asked for it. It belongs
-- to no session until one uses it, and its node remembers which one does.

CREATE TABLE spares (
    id      TEXT NOT NULL,
    seq     INTEGER NOT NULL,
    owner   TEXT NOT NULL,
    kind    TEXT NOT NULL,
    path    TEXT NOT NULL,
    content TEXT NOT NULL,
    target  TEXT NOT NULL,
    PRIMARY KEY (id, seq)
) STRICT, WITHOUT ROWID;
