# frozen_string_literal: true

module Idempotency
  # Extends the lease of a claim, and knows when it may have expired.
  #
  # A beat comes at a third of the lease; after a failed one, the next comes a tenth of the lease later. A failed beat
  # does not tell who owns the claim, so the work continues until the lease may have expired. That is counted from the
  # moment at which the last successful request was sent, so our count ends before the server's.
  class Heartbeat
    # The block sends one beat.
    def initialize(lease, sent, on_lost, &beat)
      @lease = lease
      @until = sent + lease
      @on_lost = on_lost
      @beat = beat
      @lock = Monitor.new
      @changed = @lock.new_cond
    end

    # Runs the block, with beats at the same time.
    def run
      @next = @until - (@lease * 2 / 3)
      Thread.new { beat while pause }
      yield
    ensure
      stop
    end

    def stop = change { @stopped = true }

    # Tells the work to stop, although the claim is still ours.
    def abort = change { @aborted = true }

    def told? = @lost || @aborted || false

    # Until the work is told to stop, or has ended.
    def wait = @lock.synchronize { @changed.wait until told? || @stopped }

    def check_told
      check
      raise Error, "the worker has been aborted" if @aborted
    end

    def check
      raise LeaseLost, "the claim is lost: nothing more may be done" if @lost
    end

    # A request that was sent then has extended the lease.
    def succeeded(sent) = @lock.synchronize { @until = [@until, sent + @lease].max }

    # The lease may have ended, or the server says that the claim is lost.
    def lose
      change do
        return if @stopped || @lost

        @lost = @stopped = true
      end
      @on_lost&.call
      false
    end

    private

    def change
      @lock.synchronize do
        yield
        @changed.broadcast
      end
    end

    # Until the next beat; false if there is none.
    def pause
      @lock.synchronize do
        until @stopped || (rest = [@next, @until].min - Limit.now) <= 0
          @changed.wait(rest)
        end
        return false if @stopped
      end
      Limit.now < @until || lose
    end

    def beat
      sent = Limit.now
      Limit.within([@lease / 6, @until - sent].min, DatabaseLate, &@beat)
      succeeded(sent)
      @next = sent + (@lease / 3)
    rescue StandardError => error
      return lose if Failures.lost?(error)

      @next = Limit.now + (@lease / 10)
    end
  end
end
