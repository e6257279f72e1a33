-- Sessions, the journal of what undoes them, and the verdicts on their
-- requests. Times are nanoseconds since 1970, UTC; lists are JSON.

CREATE TABLE sessions (
    id         TEXT PRIMARY KEY,
    node       TEXT NOT NULL,      -- the start of the node that carries it
    state      TEXT NOT NULL,
    reason     TEXT NOT NULL,
    user       TEXT NOT NULL,
    uid        INTEGER NOT NULL,
    repository TEXT NOT NULL,
    tool       TEXT NOT NULL,
    command    TEXT NOT NULL,
    engine     TEXT NOT NULL,
    sandboxed  INTEGER NOT NULL,
    since      INTEGER NOT NULL,
    ended      INTEGER,
    exit_code  INTEGER,
    stages     TEXT NOT NULL,
    enforced   TEXT NOT NULL,
    notices    TEXT NOT NULL,
    allowed    INTEGER NOT NULL DEFAULT 0,
    denied     INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX sessions_by_since ON sessions (since);
CREATE INDEX sessions_by_state ON sessions (state);

-- No cascade: a session whose undo is not done cannot be forgotten.
CREATE TABLE journal (
    session TEXT NOT NULL REFERENCES sessions (id),
    seq     INTEGER NOT NULL,
    owner   TEXT NOT NULL,
    kind    TEXT NOT NULL,
    path    TEXT NOT NULL,
    content TEXT NOT NULL,
    target  TEXT NOT NULL,
    done    INTEGER,
    PRIMARY KEY (session, seq)
) STRICT, WITHOUT ROWID;

CREATE INDEX journal_pending ON journal (session, seq) WHERE done IS NULL;

CREATE TABLE verdicts (
    seq     INTEGER PRIMARY KEY,
    session TEXT NOT NULL REFERENCES sessions (id),
    id      TEXT NOT NULL,         -- what a denied agent is shown
    time    INTEGER NOT NULL,
    allowed INTEGER NOT NULL,
    host    TEXT NOT NULL,
    port    INTEGER NOT NULL,
    method  TEXT NOT NULL,
    path    TEXT NOT NULL,
    rule    TEXT NOT NULL,
    layer   TEXT NOT NULL,
    reason  TEXT NOT NULL
) STRICT;

CREATE INDEX verdicts_by_session ON verdicts (session, seq);
CREATE INDEX verdicts_by_id ON verdicts (id);
