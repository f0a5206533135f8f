# frozen_string_literal: true

require "English"
require "json"
require "pg"
require "socket"

# Idempotency keys for Rack, Rails and ruby-pg, kept by PostgreSQL's extension `idempotency`.
module Idempotency
  autoload :ActiveRecord, "idempotency/active_record"
  autoload :Caller, "idempotency/caller"
  autoload :Controller, "idempotency/rails"
  autoload :Exchange, "idempotency/exchange"
  autoload :Worker, "idempotency/worker"

  module_function

  # Claim, work and answer in one transaction. The block gets the claim, and returns an Answer.
  #
  # If it raises, or its answer is not to be kept, everything rolls back, and the key is free.
  def transactionally(database, scope: "functions", principal: "", settings: {}, **request, &work)
    Transactional.new(database, Request.new(scope:, principal:, **request), Settings.new(**settings)).run(&work)
  end

  # The claim is committed first, and the answer with its token afterwards.
  #
  # An answer that is not to be kept, and an exception other than NothingHappened, leave the outcome open: the scope's
  # policy says whether the request may be tried again.
  def leased(database, scope: "functions", principal: "", settings: {}, **request, &work)
    Leased.new(database, Request.new(scope:, principal:, **request), Settings.new(**settings)).run(&work)
  end

  # A message: applied once, in one transaction with the note that it was. True if now. The block gets the connection.
  def once(database, key, scope: "messages", principal: "", settings: {}, &work)
    Transactional.new(database, Request.new(key:, scope:, principal:), Settings.new(**settings)).once(&work)
  end
end

%w[contract errors limit answer key identity options link pg transactional leased route]
  .each { |part| require "idempotency/#{part}" }
