# frozen_string_literal: true

module Idempotency
  # Time limits. One thread serves all others: it interrupts those whose time is over.
  module Limit
    module_function

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    # Runs the block, and raises `late` if it does not end in time, or ConnectionGone as soon as `gone` says so.
    #
    # It is interrupted where it waits, so that connections change hands as a whole; with `at: :immediate` anywhere.
    def within(seconds, late, gone: nil, at: :on_blocking, &block) = Watch.new(seconds, late, gone).run(at, &block)

    # One run of a block, and its interruption, which is no StandardError, so that `rescue => error` does not hide it.
    class Watch < Exception # rubocop:disable Lint/InheritException
      LOOK = 0.25 # seconds between two looks at an idle connection

      attr_reader :due

      def initialize(seconds, late, gone)
        super("the time is over")
        @thread = Thread.current
        @limit = seconds
        @late = late
        @gone = gone
        @end = Limit.now + seconds
        plan
      end

      def run(at, &)
        value = interruptible(at, &)
      rescue Watch, StandardError => error
        raise if error.is_a?(Watch) && !error.equal?(self) # of a limit around this one

        raise @over || error
      else
        raise @over if @over # the block has hidden the interruption

        value
      end

      # By the timers' thread. True if the block is interrupted.
      def look
        @over =
          if Limit.now >= @end then @late.new("no end within #{@limit} s")
          elsif @gone&.call then ConnectionGone.new("the connection is lost")
          end
        @over ? @thread.raise(self) : plan
        !@over.nil?
      end

      private

      # An interruption that comes too late is raised at the end of the outer block, not behind it.
      def interruptible(at, &)
        Thread.handle_interrupt(Watch => :never) do
          TIMERS.add(self)
          Thread.handle_interrupt(Watch => at, &)
        ensure
          TIMERS.remove(self)
        end
      end

      def plan
        @due = @gone ? [@end, Limit.now + LOOK].min : @end
      end
    end

    # The thread. A forked process gets its own.
    class Timers
      IDLE = 60

      def initialize
        @lock = Mutex.new
        @changed = ConditionVariable.new
        @watches = {}.compare_by_identity
        @wakes = 0
      end

      def add(watch)
        @lock.synchronize do
          @watches[watch] = true
          @thread = Thread.new { serve } unless @thread&.alive?
          @changed.signal if watch.due < @wakes
        end
      end

      # From now on the watch interrupts nothing.
      def remove(watch) = @lock.synchronize { @watches.delete(watch) }

      private

      def serve
        Thread.current.name = "idempotency limits"
        @lock.synchronize { loop { pause } }
      end

      def pause
        now = Limit.now
        @watches.delete_if { |watch, _| watch.due <= now && watch.look }
        @wakes = @watches.each_key.map(&:due).min || (now + IDLE)
        @changed.wait(@lock, [@wakes - now, 0].max)
      end
    end

    TIMERS = Timers.new
  end
end
