# frozen_string_literal: true

module Idempotency
  # A refusal that does not concern keys, raised while a request is looked at.
  class Problem < StandardError
    def initialize(word, detail = nil)
      @document = Problem.local(word, detail)
      super(detail || @document["title"])
    end

    def answer = Problem.answer(@document)

    # The document without the server's help.
    def self.local(word, detail = nil)
      known = Contract::PROBLEMS.fetch(word)
      type = "/problems/idempotency/#{word.tr("_", "-")}"
      { "type" => type, "title" => known.title, "status" => known.status, "detail" => detail }.compact
    end

    def self.answer(document)
      headers = [%w[Content-Type application/problem+json]]
      headers << ["Retry-After", document["retry_after"].to_s] if document["retry_after"]
      Answer.new(status: document["status"], headers:, body: JSON.generate(document))
    end
  end

  # Problem documents (RFC 9457) of one database, each requested once.
  class Problems
    def initialize(database, options)
      @database = database
      @options = options
      @known = {}
    end

    def answer(word, retry_after = nil)
      document = document(word).dup
      document["status"] = @options.status_of(word) || document["status"]
      retry_after ||= 1 if word == "in_progress"
      document["retry_after"] = [1, retry_after.ceil].max if retry_after
      Problem.answer(document)
    end

    private

    def document(word)
      return Problem.local(word) if Contract::PROBLEMS.fetch(word).local

      @known[word] ||= Limit.within(@options.database_timeout, DatabaseLate) do
        JSON.parse(@database.statement(Contract::PROBLEM_SQL, [word]).first["problem"])
      end
    rescue StandardError
      Problem.local(word)
    end
  end
end
