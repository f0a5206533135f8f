# frozen_string_literal: true

require "io/wait"

module Idempotency
  # The handler's view of a record that a worker has claimed.
  class Work < LeasedClaim
    attr_reader :token, :operation, :http_method, :path, :request, :error

    # The connection of the transaction that commits with the result; nil where the worker is leased.
    attr_accessor :client

    def initialize(request, row, held)
      super(request, held)
      @token = held.record.token.to_i
      @operation, @http_method, @path, @error = row.values_at("operation", "method", "path", "error")
      @request = Record.json(row["request"])
    end

    def kind = client ? :transactional : :leased

    def step(name) = client ? raise(Error, "a transaction has no steps: use `mode: :leased`") : super

    def unknown(*) = client ? raise(Error, "a transaction has a known end: use `mode: :leased`") : super
  end

  # Works off the records of a scope that are due, and that no client sends again: webhooks, jobs, abandoned work.
  #
  # The block gets a Work. Its Answer is stored with the record; any other value completes the record without one.
  # After an exception the policy says when the record is due again. `run` returns after `stop`.
  class Worker
    # A worker's.
    class Options < Settings
      SIZE = ["a whole number from 1 to 1000", ->(value) { value.is_a?(Integer) && value.between?(1, 1000) }].freeze
      TELL = ->(error, _work) { warn "idempotency: a worker: #{error.full_message(highlight: false)}" }
      KNOWN = {
        size: [SIZE, 1], poll: [SECONDS, 1.0], channel: [TEXT, nil], holder: [TEXT, nil],
        mode: [one_of(:transactional, :leased), :transactional], on_error: [CALL, TELL],
        handler_timeout: [SECONDS, Contract::LEASED_HANDLER_TIMEOUT_MS / 1000.0],
        **Settings::KNOWN.slice(:lease, :database_timeout)
      }.freeze
      attr_reader(*KNOWN.keys)
    end

    # Why the worker's pause ends: something is queued, or something else has changed.
    QUEUED = "q"
    ENDED = "e"

    # `scope`: one, or the beginning of several and `*`.
    def initialize(database, scope, **options, &handler)
      raise ArgumentError, "idempotency: a worker needs a scope and a block" if scope.to_s.empty? || handler.nil?

      @options = Options.new(**options)
      if database.respond_to?(:connections) && database.connections <= @options.size
        raise ArgumentError, "idempotency: `size` has to be less than the pool's connections: heartbeats need one, too"
      end

      @database = database
      @scope = scope.to_s
      @handler = handler
      @outage = pauses
      @claim_at = 0
      @held = {}.compare_by_identity
      @lock = Mutex.new
      @woken, @waker = IO.pipe
    end

    # Raises if the first statement shows a mistake: no right, no such function. Later that counts as an outage.
    def run
      listener = Thread.new { listen } if @options.channel
      until @stopped
        claim if free.positive? && Limit.now >= @claim_at
        rest unless @stopped
      end
    ensure
      @stopped = true
      listener&.kill&.join
      rest until @lock.synchronize { @held.empty? }
    end

    # No more claims: `run` returns when the handlers have ended. A trap of a signal may call it.
    def stop
      @stopped = true
      wake(ENDED)
    end

    # The handlers are told to stop as well, by `lost?` and `check` of their work.
    def abort
      @aborted = true
      stop
    end

    private

    # Seconds, which double, up to half a minute.
    def pauses = Enumerator.produce(@options.poll) { |last| [last * 2, [30, @options.poll].max].min }

    def jittered(seconds) = seconds * rand(0.5..1.5)

    def free = @options.size - @lock.synchronize { @held.size }

    def limited(&) = Limit.within(@options.database_timeout, DatabaseLate, &)

    # As many as there is room for. If there were so many, more may be due.
    def claim
      sent = Limit.now
      room = free
      values = [@scope, room.to_s, Values.milliseconds(@options.lease), @options.holder]
      rows = limited { @database.statement(Contract::DUE_SQL, values) }
      @known_to_work = true
      @outage.rewind
      @claim_at = rows.size < room ? sent + jittered(@options.poll) : 0
      rows.each { |row| take(row, sent) }
    rescue StandardError => error
      raise if !@known_to_work && Failures.mistake?(error)

      tell(error)
      @claim_at = Limit.now + jittered(@outage.next)
    end

    # Until there may be something to do.
    def rest
      seconds = [@claim_at - Limit.now, 0].max if !@stopped && free.positive?
      # What a notification is about may have been queued after the last look.
      @claim_at = 0 if @woken.wait_readable(seconds) && @woken.read_nonblock(1000).include?(QUEUED)
      @lock.synchronize { @held.each_key { |held| held.heart.abort } } if @aborted
    end

    def wake(why) = @waker.write_nonblock(why, exception: false)

    # Listens again when a connection is lost.
    def listen(waits = pauses)
      hear(waits)
    rescue StandardError => error
      tell(error)
      sleep(jittered(waits.next))
      retry
    end

    # Each notification ends the worker's pause. The connection is the listener's own.
    def hear(waits)
      connection = limited { @database.connect }
      limited { connection.exec("LISTEN #{PG::Connection.quote_ident(@options.channel)}") }
      waits.rewind
      wake(QUEUED) # what was queued before it listened needs a look
      loop { connection.wait_for_notify && wake(QUEUED) }
    ensure
      connection&.finish
    end

    def take(row, sent)
      request = Request.new(key: row["key"], scope: row["scope"], principal: row["principal"])
      held = Leased.new(@database, request, @options, uncertain: @options.mode == :leased)
      held.hold(Record.new(row, request), sent)
      @lock.synchronize { @held[held] = true }
      Thread.new { perform(held, row) }
    end

    def perform(held, row)
      work = nil
      held.settle do
        work = Work.new(held.request, row, held)
        @options.mode == :leased ? answer_to(work) : in_transaction(held, work)
      end
    rescue ScriptError, StandardError => error
      tell(error, work)
    ensure
      @database.release if @database.respond_to?(:release)
      @lock.synchronize { @held.delete(held) }
      wake(ENDED)
    end

    # A Result where it has committed; else the answer, whose work is rolled back.
    def in_transaction(held, work)
      result = Transactional.new(@database, held.request, @options).work_off(held.record) do |claim|
        held.heart.check # it may run again
        work.client = claim.client
        answer_to(work).tap { held.heart.check }
      end
      result.outcome == "executed" ? result : result.answer
    end

    def answer_to(work)
      answer = @handler.call(work)
      answer.is_a?(Answer) ? answer : Answer.new(status: nil)
    end

    def tell(error, work = nil) = @options.tell(:on_error, error, work)
  end
end
