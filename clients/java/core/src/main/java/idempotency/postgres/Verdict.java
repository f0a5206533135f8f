package idempotency.postgres;

/**
 * The result of a request, for adapters.
 *
 * @param claimed the last answer of {@code idem_begin}, null if there was none
 * @param answer of the work, whether kept or not
 * @param ran whether the work has run
 * @param lost whether another worker has the claim
 * @param failure of the work, or of the database
 */
public record Verdict(Claimed claimed, Answer answer, boolean ran, boolean lost, Exception failure) {
    /**
     * The answer of work.
     *
     * @param keep whether to store it
     * @param failure of work that has answered nevertheless, else null
     * @param withoutWork whether the transaction's work is rolled back before the answer is stored
     */
    public record Kept(Answer answer, boolean keep, Exception failure, boolean withoutWork) {
        public Kept(Answer answer, boolean keep) {
            this(answer, keep, null, false);
        }
    }
}
