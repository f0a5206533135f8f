package idempotency.postgres;

/** Another worker may have the claim: the work must have no further effect. */
public class LeaseLost extends RuntimeException {
    LeaseLost() {
        super("the lease of this claim is lost");
    }

    /** With the failure that the loss, or something else, has caused; null if there is none. */
    static LeaseLost after(Exception failure) {
        LeaseLost lost = failure instanceof LeaseLost same ? same : new LeaseLost();
        if (failure != null && failure != lost) {
            lost.addSuppressed(failure);
        }
        return lost;
    }
}
