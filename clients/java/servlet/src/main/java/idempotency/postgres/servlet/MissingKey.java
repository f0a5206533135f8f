package idempotency.postgres.servlet;

/** The treatment of a request without a key. */
public enum MissingKey {
    /** 400. */
    REFUSE,
    /** Runs without a claim. */
    PASS,
    /** Runs under a new key, which the answer names. */
    GENERATE,
    /** Under a key that the server derives from method, target and body: identical requests take effect once within the window. */
    DERIVE
}
