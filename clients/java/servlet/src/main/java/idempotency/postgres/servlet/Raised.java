package idempotency.postgres.servlet;

/** An exception that is an answer: with a 4xx it is stored and replayed, without the work. */
final class Raised extends Exception {
    private final transient Exception failure;

    Raised(Exception failure) {
        super(failure.toString(), failure, false, false);
        this.failure = failure;
    }

    Exception failure() {
        return failure;
    }
}
