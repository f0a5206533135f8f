package idempotency.postgres;

/**
 * What became of a request, for adapters.
 *
 * @param claimed what {@code idem_begin} said last, null if nothing
 * @param answer of the work, whether kept or not
 * @param ran whether the work has run
 * @param lost whether somebody else has the claim
 * @param failure of the work, or of the database
 */
public record Verdict(Claimed claimed, Answer answer, boolean ran, boolean lost, Exception failure) {
    /**
     * The answer of work.
     *
     * @param keep whether it is to be stored
     * @param failure of work that has answered nevertheless, else null
     */
    public record Kept(Answer answer, boolean keep, Exception failure) {
        public Kept(Answer answer, boolean keep) {
            this(answer, keep, null);
        }
    }
}
