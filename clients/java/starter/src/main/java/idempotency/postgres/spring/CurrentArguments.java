package idempotency.postgres.spring;

import idempotency.postgres.Claim;
import idempotency.postgres.Execution;
import idempotency.postgres.servlet.Current;
import jakarta.servlet.ServletRequest;
import org.springframework.core.MethodParameter;
import org.springframework.web.bind.support.WebDataBinderFactory;
import org.springframework.web.context.request.NativeWebRequest;
import org.springframework.web.method.support.HandlerMethodArgumentResolver;
import org.springframework.web.method.support.ModelAndViewContainer;

/** Parameters of a controller's method: {@link Execution}, and {@link Claim} of a leased one. */
final class CurrentArguments implements HandlerMethodArgumentResolver {
    @Override
    public boolean supportsParameter(MethodParameter parameter) {
        return parameter.getParameterType() == Claim.class || parameter.getParameterType() == Execution.class;
    }

    @Override
    public Object resolveArgument(MethodParameter parameter, ModelAndViewContainer container, NativeWebRequest request,
            WebDataBinderFactory factory) {
        Current current = Current.of(request.getNativeRequest(ServletRequest.class));
        if (current == null) {
            return null;
        }
        return parameter.getParameterType() == Claim.class ? current.claim() : current.execution();
    }
}
