-- System calls that a session's programs made and that were refused, counted by
-- program and call. There is a bounded number of them for each session.

CREATE TABLE refusals (
    session TEXT NOT NULL REFERENCES sessions (id),
    seq     INTEGER NOT NULL,   -- the order of their first
    program TEXT NOT NULL,      -- '' where nobody knows
    pid     INTEGER NOT NULL,   -- inside, of the first
    call    TEXT NOT NULL,
    tried   TEXT NOT NULL,
    answer  TEXT NOT NULL,
    count   INTEGER NOT NULL,
    first   INTEGER NOT NULL,
    last    INTEGER NOT NULL,
    PRIMARY KEY (session, seq)
) STRICT, WITHOUT ROWID;
