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
    extend ActiveSupport::Concern

    included do
      class_attribute :idempotent_routes, default: {}, instance_accessor: false
      class_attribute :idempotency_keys, default: Keys.new(ActiveRecord.new), instance_accessor: false
    end

    # What a controller's class says about its actions.
    module ClassMethods
      # Options of all routes of this controller and those derived from it, and their database.
      def idempotency(**options)
        raise ArgumentError, "idempotency: `idempotency` has to stand before `idempotent`" if @idempotency_named

        self.idempotency_keys = idempotency_keys.with(**options)
      end

      def idempotent(*actions, kind: :transactional, **options)
        refuse_live
        raise ArgumentError, "idempotency: `idempotent` names no action" if actions.empty?

        route = idempotency_keys.route(kind, **options)
        @idempotency_named = @idempotency_named.to_a + actions
        self.idempotent_routes = idempotent_routes.merge(actions.to_h { |action| [action.to_s, route] })
      end

      # As an endpoint of Rack.
      def action(name)
        ->(env) { ActionDispatch::Request.new(env).then { |request| dispatch(name, request, make_response!(request)) } }
      end

      def dispatch(name, request, response)
        check_named
        route = idempotent_routes[name.to_s] or return super
        refuse_live # it may have been included since then
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

      # It runs the action in a thread of its own, and so with another connection.
      def refuse_live = self < ActionController::Live && raise(ArgumentError, "idempotency: Live cannot be protected")

      # Rails answers some exceptions by a status of 4xx, far outside of here.
      def answered(request)
        yield
      rescue StandardError => error
        status = ActionDispatch::ExceptionWrapper.new(nil, error).status_code
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
    # errors first, and those after which it runs the action again.
    def rescue_with_handler(error, **options)
      return super unless idempotency_claim
      return if [NothingHappened, Rejection, HandlerLate].any? { |kind| error.is_a?(kind) }
      return if idempotency_claim.kind == :transactional && Failures.transient?(error, of_handler: true)

      super.tap { |handled| request.set_header("idempotency.raised", true) if handled }
    end

    private

    # The claim of the request, in an action that `idempotent` names.
    def idempotency_claim = request.get_header(Exchange::CLAIM)
  end
end
