package idempotency.postgres;

/**
 * Thrown by work that has certainly had no effect. The request is executed again, even if the policy refuses to
 * repeat attempts with an uncertain outcome. It also counts as the cause of another exception.
 */
public class NothingHappenedException extends RuntimeException {
    public NothingHappenedException(String message) {
        super(message);
    }

    public NothingHappenedException(String message, Throwable cause) {
        super(message, cause);
    }

    /** The failure itself or one of its causes; null if neither is one. */
    static NothingHappenedException of(Throwable failure) {
        NothingHappenedException[] found = {null};
        DatabaseFailure.anyCause(failure, cause -> {
            found[0] = cause instanceof NothingHappenedException known ? known : null;
            return found[0] != null;
        });
        return found[0];
    }
}
