package idempotency.postgres.servlet;

import idempotency.postgres.Idempotency;
import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;

/** Protects the handlers behind it; {@link Current#of} gives a handler its transaction or claim. */
public final class IdempotencyFilter implements Filter {
    private final Idempotency idempotency;
    private final Route route;
    private final boolean leased;

    private IdempotencyFilter(Idempotency idempotency, Route route, boolean leased) {
        this.idempotency = idempotency;
        this.route = route.copy();
        this.leased = leased;
        Options.check(this.route);
    }

    /** For work that is SQL. */
    public static IdempotencyFilter transactional(Idempotency idempotency, Route route) {
        return new IdempotencyFilter(idempotency, route, false);
    }

    /** For work that calls other services. */
    public static IdempotencyFilter leased(Idempotency idempotency, Route route) {
        return new IdempotencyFilter(idempotency, route, true);
    }

    @Override
    public void doFilter(ServletRequest request, ServletResponse response, FilterChain chain)
            throws IOException, ServletException {
        if (request instanceof HttpServletRequest http && route.methods.contains(http.getMethod())) {
            new Exchange(idempotency, route, leased, http, (HttpServletResponse) response, chain).serve();
        } else {
            chain.doFilter(request, response);
        }
    }
}
