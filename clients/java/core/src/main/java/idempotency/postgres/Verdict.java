package idempotency.postgres;

/** What becomes of an answer and its claim. */
public enum Verdict {
    /** The answer is stored and replayed. */
    KEEP,
    /** Nothing has happened: the answer is sent, and a repeat executes. */
    FREE,
    /** The work may have had its effect: the answer is sent, and repeats are refused as {@code unknown}. */
    UNKNOWN
}
