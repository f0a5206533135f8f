package idempotency.postgres.spring;

import idempotency.postgres.servlet.Route;
import org.springframework.web.method.HandlerMethod;

/** A bean that changes routes when the service starts: {@code keep}, {@code fingerprint}, hooks. */
@FunctionalInterface
public interface RouteCustomizer {
    void customize(Route route, HandlerMethod method);
}
