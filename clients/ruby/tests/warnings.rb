# frozen_string_literal: true

# A warning of ours fails the tests; those of Debian's gems do not.
module Warning
  OURS = File.expand_path("..", __dir__)

  def self.warn(message, **)
    raise message if message.start_with?("#{OURS}/lib", "#{OURS}/tests")

    $stderr.print(message) if message.start_with?("idempotency:")
  end
end
