package idempotency.postgres.spring;

import idempotency.postgres.servlet.Current;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import org.springframework.core.Ordered;
import org.springframework.web.servlet.HandlerExceptionResolver;
import org.springframework.web.servlet.ModelAndView;

/**
 * Notes exceptions before others turn them into answers: a method that throws has failed, as with {@code
 * @Transactional}.
 */
final class FailureObserver implements HandlerExceptionResolver, Ordered {
    @Override
    public int getOrder() {
        return HIGHEST_PRECEDENCE;
    }

    @Override
    public ModelAndView resolveException(HttpServletRequest request, HttpServletResponse response, Object handler, Exception failure) {
        if (Current.of(request) != null) {
            Current.fail(request, failure);
        }
        return null;
    }
}
