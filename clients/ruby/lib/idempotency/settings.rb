# frozen_string_literal: true

module Idempotency
  # All statuses except those that another attempt may cure, and server faults.
  KEEP_BY_DEFAULT = ->(status) { status < 500 && !Contract::NOT_KEPT.include?(status) }

  # How work is run, and which of its answers are kept. Times are seconds.
  class Settings
    DEFAULTS = {
      attempts: Contract::ATTEMPTS, database_timeout: Contract::DATABASE_TIMEOUT_MS / 1000.0, keep: KEEP_BY_DEFAULT,
      verdict: ->(_answer) {}, handler_timeout: nil, drop_headers: [], lease: Contract::LEASE_MS / 1000.0,
      on_claim: ->(_record) {}, on_lease_lost: ->(_record) {}
    }.freeze

    attr_reader(*DEFAULTS.keys)

    def initialize(**given)
      unknown = given.keys - DEFAULTS.keys
      raise ArgumentError, "idempotency: there is no setting `#{unknown.first}`" if unknown.any?

      DEFAULTS.merge(given).each { |name, value| instance_variable_set(:"@#{name}", value) }
    end

    # `keep`, `free` or `unknown`; `by_status` where the route has no opinion, and the status is one not to keep.
    def verdict_on(answer)
      by_status = keep.call(answer.status) && !(answer.raised && answer.status >= 500)
      (verdict.call(answer) || (by_status ? "keep" : "by_status")).to_s
    end

    def limit_of_work(default_ms)
      handler_timeout || (default_ms / 1000.0)
    end
  end
end
