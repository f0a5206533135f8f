# frozen_string_literal: true

module Idempotency
  # The handler's view of a record that a worker has claimed.
  class Work < LeasedClaim
    attr_reader :token, :operation, :http_method, :path, :request, :error

    # The connection of the transaction that commits with the result; nil where the worker is leased.
    attr_accessor :client

    def initialize(request, row, held)
      super(request, held.record, held)
      @token = held.record.token.to_i
      @operation, @http_method, @path, @error = row.values_at("operation", "method", "path", "error")
      @request = row["request"] && JSON.parse(row["request"])
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
    modes = %i[transactional leased]
    KNOWN = {
      size: [Options.check("a whole number from 1 to 1000") { |value| value.is_a?(Integer) && value.between?(1, 1000) }, 1],
      lease: [Options::SECONDS, Contract::LEASE_MS / 1000.0],
      poll: [Options::SECONDS, 1.0],
      channel: [Options::TEXT, nil],
      mode: [Options.check("one of #{modes.join(", ")}") { |value| modes.include?(value) }, :transactional],
      holder: [Options::TEXT, nil],
      handler_timeout: [Options::SECONDS, Contract::LEASED_HANDLER_TIMEOUT_MS / 1000.0],
      database_timeout: [Options::SECONDS, Contract::DATABASE_TIMEOUT_MS / 1000.0],
      on_error: [Options::CALL, ->(error, _work) { warn "idempotency: a worker: #{error.full_message(highlight: false)}" }]
    }.freeze

    # `scope`: one, or the beginning of several and `*`.
    def initialize(database, scope, **options, &handler)
      raise ArgumentError, "idempotency: a worker needs a scope and a block" if scope.to_s.empty? || handler.nil?

      Options.read(KNOWN, options) { |name, value| instance_variable_set(:"@#{name}", value) }
      if database.respond_to?(:connections) && database.connections <= @size
        raise ArgumentError, "idempotency: `size` has to be less than the pool's connections: heartbeats need one, too"
      end

      @database = database
      @scope = scope.to_s
      @handler = handler
      prepare
    end

    # Raises if the first statement shows a mistake: no right, no such function. Later that counts as an outage.
    def run
      turn until @stopped
    ensure
      @stopped = true
      @listener&.close
      rest until @lock.synchronize { @held.empty? }
    end

    # No more claims: `run` returns when the handlers have ended. A trap of a signal may call it.
    def stop
      @stopped = true
      wake
    end

    # The handlers are told to stop as well, by `lost?` and `check` of their work.
    def abort
      @aborted = true
      stop
    end

    private

    def prepare
      @settings = Settings.new(lease: @lease, handler_timeout: @handler_timeout, database_timeout: @database_timeout)
      @listener = Listener.new(@database, @channel, Pauses.new(@poll), method(:tell)) if @channel
      @outage = Pauses.new(@poll)
      @claim_at = 0
      @held = []
      @lock = Mutex.new
      @woken, @waker = IO.pipe
    end

    def turn
      # What was queued before it listened needs a look.
      @claim_at = 0 if @listener && limited { @listener.open }
      claim if free.positive? && Limit.now >= @claim_at
      rest unless @stopped
    end

    def free = @size - @lock.synchronize { @held.size }

    def limited(&) = Limit.within(@database_timeout, DatabaseLate, &)

    # As many as there is room for. If there were so many, more may be due.
    def claim
      sent = Limit.now
      room = free
      rows = limited { @database.statement(*Statements.due(@scope, room, @lease, @holder)) }
      @known_to_work = true
      @outage.reset
      @claim_at = rows.size < room ? sent + (@poll * rand(0.5..1.5)) : 0
      rows.each { |row| take(row, sent) }
    rescue StandardError => error
      raise unless @known_to_work || Failures.transient?(error)

      tell(error)
      @claim_at = Limit.now + @outage.next
    end

    # Until there may be something to do.
    def rest
      seconds = [@claim_at - Limit.now, 0].max if !@stopped && free.positive?
      ready, = IO.select([@woken, @listener&.io].compact, nil, nil, seconds)
      @woken.read_nonblock(1000) if ready&.include?(@woken)
      @claim_at = 0 if ready&.include?(@listener&.io) && @listener.heard?
      @lock.synchronize { @held.each { |held| held.heart.abort } } if @aborted
    end

    def wake = @waker.write_nonblock(".", exception: false)

    def take(row, sent)
      request = Request.new(key: row["key"], scope: row["scope"], principal: row["principal"])
      held = Leased.new(@database, request, @settings, uncertain: @mode == :leased)
      held.hold(Record.new(row), sent)
      @lock.synchronize { @held << held }
      Thread.new { perform(request, held, Work.new(request, row, held)) }
    end

    def perform(request, held, work)
      held.settle { @mode == :leased ? answer_to(work) : in_transaction(request, held, work) }
    rescue ScriptError, StandardError => error
      tell(error, work)
    ensure
      @database.release if @database.respond_to?(:release)
      @lock.synchronize { @held.delete(held) }
      wake
    end

    # A Result where it has committed; else the answer, whose work is rolled back.
    def in_transaction(request, held, work)
      result = Transactional.new(@database, request, @settings).work_off(held.record) do |client|
        work.client = client
        answer_to(work).tap { held.heart.check }
      end
      result.outcome == "executed" ? result : result.answer
    end

    def answer_to(work)
      answer = @handler.call(work)
      answer.is_a?(Answer) ? answer : Answer.new(status: nil)
    end

    def tell(error, work = nil)
      @on_error.call(error, work)
    rescue StandardError => error
      warn "idempotency: a hook has failed: #{error.full_message(highlight: false)}"
    end
  end

  # Pauses that double, up to half a minute.
  class Pauses
    LONGEST = 30

    def initialize(first)
      @first = first
      reset
    end

    def reset
      @next = @first
    end

    def next
      pause = @next * rand(0.5..1.5)
      @next = [@next * 2, [LONGEST, @first].max].min
      pause
    end
  end

  # A connection that hears a channel, made again when it is lost.
  class Listener
    def initialize(database, channel, pauses, on_error)
      @database = database
      @channel = PG::Connection.quote_ident(channel)
      @pauses = pauses
      @on_error = on_error
      @again = 0
    end

    # True if it listens from now on.
    def open
      return if @connection || Limit.now < @again

      @connection = @database.connect
      @connection.exec("LISTEN #{@channel}")
      @pauses.reset
      true
    rescue StandardError => error
      lose(error)
    end

    def io = @connection&.socket_io

    # Whether there is a reason to look.
    def heard?
      @connection.consume_input
      heard = true while @connection.notifies
      heard
    rescue PG::Error => error
      lose(error)
      true
    end

    def close
      @connection&.finish
    rescue PG::Error
      nil # closed before
    ensure
      @connection = nil
    end

    private

    def lose(error)
      close
      @again = Limit.now + @pauses.next
      @on_error.call(error)
      nil
    end
  end
end
