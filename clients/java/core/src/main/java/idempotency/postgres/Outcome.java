package idempotency.postgres;

/** Words of {@code idem_begin}, and others that have a problem document on the server. */
public final class Outcome {
    public static final String EXECUTE = "execute";
    public static final String REPLAY = "replay";
    public static final String IN_PROGRESS = "in_progress";
    public static final String MISMATCH = "mismatch";
    public static final String EXPIRED = "expired";
    public static final String RETRY_LATER = "retry_later";
    public static final String EXHAUSTED = "exhausted";
    public static final String UNKNOWN = "unknown";
    public static final String MISSING_KEY = "missing_key";
    public static final String BAD_KEY = "bad_key";
    public static final String FAILED = "failed";
    /** The database is away. */
    public static final String UNAVAILABLE = "unavailable";

    private Outcome() {}
}
