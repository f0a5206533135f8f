package idempotency.postgres.spring;

import idempotency.postgres.servlet.IdempotencyFilter;
import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletRequest;
import java.io.IOException;
import java.util.Optional;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.web.method.HandlerMethod;
import org.springframework.web.servlet.HandlerExecutionChain;
import org.springframework.web.servlet.mvc.method.RequestMappingInfoHandlerMapping;
import org.springframework.web.util.ServletRequestPathUtils;

/**
 * Finds the method of a request before the DispatcherServlet does, and protects it by its annotation. It is a
 * filter, not an aspect: the answer must be known byte by byte, converters included, and the body must not be
 * read before the principal is known.
 */
final class AnnotationFilter implements Filter {
    private final ObjectProvider<RequestMappingInfoHandlerMapping> mappings;
    private final ObjectProvider<Routes> routes;

    AnnotationFilter(ObjectProvider<RequestMappingInfoHandlerMapping> mappings, ObjectProvider<Routes> routes) {
        this.mappings = mappings;
        this.routes = routes;
    }

    @Override
    public void doFilter(ServletRequest request, ServletResponse response, FilterChain chain)
            throws IOException, ServletException {
        HandlerMethod method = request instanceof HttpServletRequest http ? methodOf(http) : null;
        Optional<IdempotencyFilter> filter = method == null ? Optional.empty()
                : routes.getObject().filterOf(method);
        if (filter.isPresent()) {
            filter.get().doFilter(request, response, chain);
        } else {
            chain.doFilter(request, response);
        }
    }

    private HandlerMethod methodOf(HttpServletRequest request) {
        for (RequestMappingInfoHandlerMapping mapping : mappings.orderedStream().toList()) {
            try {
                if (mapping.usesPathPatterns() && !ServletRequestPathUtils.hasParsedRequestPath(request)) {
                    ServletRequestPathUtils.parseAndCache(request);
                }
                HandlerExecutionChain found = mapping.getHandler(request);
                if (found != null && found.getHandler() instanceof HandlerMethod method) {
                    return method;
                }
            } catch (Exception noneFits) {
                return null; // the DispatcherServlet reports the reason
            }
        }
        return null;
    }
}
