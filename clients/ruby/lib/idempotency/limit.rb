# frozen_string_literal: true

module Idempotency
  # Time limits. One thread serves all others: it interrupts those whose time is over. A forked process gets its own.
  module Limit
    # One run of a block, and its interruption, which is no StandardError, so that `rescue => error` does not hide it.
    class Watch < Exception # rubocop:disable Lint/InheritException
      LOOK = 0.25 # seconds between two looks at an idle connection

      attr_reader :due

      def initialize(seconds, late, gone)
        super("the time is over")
        @thread = Thread.current
        @late = -> { late.new("no end within #{seconds} s") }
        @gone = gone
        @end = Limit.now + seconds
        plan
      end

      # An interruption that comes too late is raised at the end of the outer block, not behind it.
      def run(at, &)
        value = Thread.handle_interrupt(Watch => :never) do
          Limit.add(self)
          Thread.handle_interrupt((at == :immediate ? Watch : Object) => at, &)
        ensure
          Limit.remove(self)
        end
        @over ? raise(@over) : value # the block may have hidden the interruption
      rescue Watch, StandardError => error
        raise if error.is_a?(Watch) && !error.equal?(self) # of a limit around this one

        raise @over || error
      end

      # By the thread of limits.
      def look
        @over = @late.call if Limit.now >= @end
        @over ||= ConnectionGone.new("the connection is lost") if @gone&.call
        @thread.raise(self) if @over
        plan
      end

      private

      # The next look: none after the interruption.
      def plan = (@due = @over ? Float::INFINITY : [@end, (Limit.now + LOOK if @gone)].compact.min)
    end

    WATCHES = {}.compare_by_identity
    LOCK = Mutex.new
    CHANGED = ConditionVariable.new
    IDLE = 60
    @wakes = 0

    module_function

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    # Runs the block, and raises `late` if it does not end in time, or ConnectionGone as soon as `gone` says so.
    #
    # It is interrupted where it waits, by others as well, so that connections change hands as a whole; with
    # `at: :immediate` anywhere.
    def within(seconds, late, gone: nil, at: :on_blocking, &block) = Watch.new(seconds, late, gone).run(at, &block)

    def add(watch)
      LOCK.synchronize do
        WATCHES[watch] = true
        @thread = nil unless @thread&.alive?
        @thread ||= Thread.new { LOCK.synchronize { loop { pause } } }.tap { |one| one.name = "idempotency limits" }
        CHANGED.signal if watch.due < @wakes
      end
    end

    # From now on the watch interrupts nothing.
    def remove(watch) = LOCK.synchronize { WATCHES.delete(watch) }

    def pause
      now = Limit.now
      WATCHES.each_key { |watch| watch.look if watch.due <= now }
      @wakes = [now + IDLE, *WATCHES.each_key.map(&:due)].min
      CHANGED.wait(LOCK, [@wakes - now, 0].max)
    end
  end

  # Runs all of it again after a conflict or a lost connection.
  #
  # Also after a COMMIT without an answer: the same key gets `replay` if it was committed, `execute` if not.
  class Retries
    # `conflicts_only`: not after a lost connection. The error is the last run's own.
    def initialize(attempts, conflicts_only: false)
      @attempts = attempts
      @conflicts_only = conflicts_only
      @attempt = @late = 0
    end

    # Whether an earlier run has lost its connection, and another one may follow.
    def lost? = @lost && @attempt < @attempts

    # The run comes to a COMMIT of which no record tells the result.
    def committing = (@committing = @attempt)

    def run
      @attempt += 1
      yield self
    rescue Thrown => thrown
      raise thrown.cause, cause: thrown.cause.cause
    rescue StandardError => error
      conflict = Failures.conflict?(error)
      raise unless conflict || (!@conflicts_only && Failures.connection_lost?(error))
      raise InDoubt, "it is not known whether the transaction committed" if !conflict && @committing == @attempt

      @lost ||= !conflict
      # Each of these has used the whole time; a second one asks for the result of a COMMIT.
      @late += 1 if error.is_a?(DatabaseLate)
      last = @attempt >= @attempts || @late == 2
      raise @conflicts_only ? error : DatabaseAway.new("the database could not do it") if last

      sleep(0.02 * (2**(@attempt - 1)) * rand(0.5..1.5))
      retry
    end
  end
end
