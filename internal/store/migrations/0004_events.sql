-- What happened to a session besides its requests. Written once, at its end.

CREATE TABLE events (
    seq     INTEGER PRIMARY KEY,
    session TEXT NOT NULL REFERENCES sessions (id),
    time    INTEGER NOT NULL,
    kind    TEXT NOT NULL,
    text    TEXT NOT NULL
) STRICT;

CREATE INDEX events_by_session ON events (session, seq);
