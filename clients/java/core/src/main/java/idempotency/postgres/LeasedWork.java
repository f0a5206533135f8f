package idempotency.postgres;

/** Work outside the database, or in steps. */
@FunctionalInterface
public interface LeasedWork<T, X extends Exception> {
    T run(Claim claim) throws X;
}
