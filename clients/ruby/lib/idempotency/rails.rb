# frozen_string_literal: true

require "idempotency-postgres"
require "action_controller"

module Idempotency
  # For controllers of Rails. Actions that `idempotent` names run within the route's protection, in ActiveRecord's
  # transaction:
  #
  #   class PaymentsController < ApplicationController
  #     include Idempotency::Controller
  #     idempotent :create, principal: ->(request) { request.env["current_account"] }
  #   end
  module Controller
    # A controller may include it although its parent does, whose routes it has then.
    def self.included(base)
      base.extend(Declarations)
      base.class_attribute :idempotent_routes, default: base.try(:idempotent_routes) || {}
      base.class_attribute :idempotency_keys, default: base.try(:idempotency_keys) || Keys.new(ActiveRecord.new)
    end

    # What a controller's class says about its actions.
    module Declarations
      # Options of all routes of this controller and those derived from it, and their database.
      def idempotency(**options) = (self.idempotency_keys = idempotency_keys.with(**options))

      def idempotent(*actions, kind: :transactional, **options)
        # It runs the action in a thread of its own, and so with another connection.
        raise ArgumentError, "idempotency: ActionController::Live cannot be stored" if live?
        raise ArgumentError, "idempotency: `idempotent` names no action" if actions.empty?

        route = idempotency_keys.route(kind, **options)
        @idempotency_named = @idempotency_named.to_a + actions
        self.idempotent_routes = idempotent_routes.merge(actions.to_h { |action| [action.to_s, route] })
      end

      # As an endpoint of Rack.
      def action(name)
        lambda do |env|
          ActionDispatch::Request.new(env).then { |request| dispatch(name, request, make_response!(request)) }
        end
      end

      def dispatch(name, request, response)
        check_named
        route = idempotent_routes[name.to_s] or return super
        exchange = Exchange.new(request, Routes.scope_of(request)) do |env|
          again = ActionDispatch::Request.new(env)
          answered(again) { super(name, again, make_response!(again)) }
        end
        Exchange.response(route.handle(exchange))
      end

      private

      # Once. If one is no action, the one that was meant would run without protection. Names of a parent may be actions
      # of other controllers.
      def check_named
        wrong = @idempotency_named&.find { |action| !new.available_action?(action.to_s) }
        raise Error, "idempotency: #{self} has no action `#{wrong}`" if wrong

        @idempotency_named = nil
      end

      def live? = defined?(ActionController::Live) && self < ActionController::Live

      # Rails answers some exceptions by a status of 4xx, far outside of here.
      def answered(request)
        yield
      rescue StandardError => error
        status = ActionDispatch::ExceptionWrapper.status_code_for_exception(error.class.name)
        shown = request.get_header("action_dispatch.show_exceptions")
        raise if status >= 500 || [false, :none, nil].include?(shown)

        request.set_header("idempotency.raised", true)
        Routes.page(request, error, status)
      end
    end

    # What is known about Rails' routes and pages.
    module Routes
      module_function

      # Method and pattern: `POST /accounts/:id/payments`.
      def scope_of(request)
        action = request.path_parameters.slice(:controller, :action)
        route = request.routes&.routes&.find do |one|
          one.defaults.slice(:controller, :action) == action && one.path.match?(request.path_info)
        end
        "#{request.request_method} #{route ? route.path.spec.to_s.delete_suffix("(.:format)") : request.path}"
      end

      # As ActionDispatch::ShowExceptions makes it.
      def page(request, error, status)
        request.set_header("action_dispatch.exception", error)
        env = request.env.merge("PATH_INFO" => "/#{status}", "action_dispatch.original_path" => request.path_info)
        pages = ::Rails.application&.config&.exceptions_app || ActionDispatch::PublicExceptions.new(::Rails.public_path)
        page = pages.call(env)
        none = page[1].any? { |name, value| name.casecmp?("X-Cascade") && value == "pass" }
        none ? [status, { "Content-Type" => "text/html; charset=utf-8" }, []] : page
      end
    end

    # The answers of `rescue_from` are those of exceptions: the action's work is rolled back. The route sees some
    # errors first.
    def rescue_with_handler(error, **options)
      return if [NothingHappened, Rejection, HandlerLate].any? { |kind| error.is_a?(kind) }
      return if Failures.transient?(error, of_handler: true)

      super.tap { |handled| request.set_header("idempotency.raised", true) if handled && idempotency_claim }
    end

    private

    # The claim of the request, in an action that `idempotent` names.
    def idempotency_claim = request.get_header(Exchange::CLAIM)
  end
end
