# frozen_string_literal: true

module Idempotency
  # All statuses except those that another attempt may cure, and server faults.
  KEEP_BY_DEFAULT = ->(status) { status < 500 && !Contract::NOT_KEPT.include?(status) }

  # How work is run, and which of its answers are kept. Times are seconds.
  Settings = Struct.new(:attempts, :database_timeout, :keep, :verdict, :handler_timeout, :drop_headers, :lease, :on_claim,
                        :on_lease_lost, keyword_init: true) do
    def initialize(**given)
      super(attempts: Contract::ATTEMPTS, database_timeout: Contract::DATABASE_TIMEOUT_MS / 1000.0, keep: KEEP_BY_DEFAULT,
            drop_headers: [], lease: Contract::LEASE_MS / 1000.0, **given)
    end

    # `keep`, `free` or `unknown`; `by_status` where the route has no opinion, and the status is one not to keep.
    def verdict_on(answer)
      return "keep" if answer.status.nil? # of a worker: done

      by_status = keep.call(answer.status) && !(answer.raised && answer.status >= 500)
      (verdict&.call(answer) || (by_status ? "keep" : "by_status")).to_s
    end

    def limit_of_work(default_ms) = handler_timeout || (default_ms / 1000.0)
  end
end
