# frozen_string_literal: true

Gem::Specification.new do |spec|
  spec.name = "idempotency-postgres"
  spec.version = "1.0.0"
  spec.summary = "Idempotency keys for Rails and Rack, kept by PostgreSQL's extension idempotency"
  spec.description = "A repeated request gets the first answer, byte by byte, and takes effect once. " \
                     "The key and the effects commit in one transaction of PostgreSQL."
  spec.license = "PostgreSQL"
  spec.authors = ["the idempotency authors"]
  spec.email = ["maintainers@idempotency.invalid"]
  spec.homepage = "https://idempotency.invalid/idempotency"
  spec.metadata = { "source_code_uri" => spec.homepage, "rubygems_mfa_required" => "true" }
  spec.required_ruby_version = ">= 3.1"
  spec.files = Dir["lib/**/*.rb", "README.md", "LICENSE"]
  spec.add_dependency "pg", "~> 1.4"
  spec.add_dependency "rack", ">= 2.2", "< 4"
end
