package idempotency.postgres;

/**
 * Thrown by work that knows that it has had no effect. The request is executed again, also where the policy says
 * that an attempt with an uncertain outcome is not. It counts as well if it is the cause of what is thrown.
 */
public class NothingHappenedException extends RuntimeException {
    public NothingHappenedException(String message) {
        super(message);
    }

    public NothingHappenedException(String message, Throwable cause) {
        super(message, cause);
    }

    /** The failure itself or one of its causes; null if it is none. */
    static NothingHappenedException of(Throwable failure) {
        NothingHappenedException[] found = {null};
        DatabaseFailure.anyCause(failure, cause -> {
            found[0] = cause instanceof NothingHappenedException known ? known : null;
            return found[0] != null;
        });
        return found[0];
    }
}
