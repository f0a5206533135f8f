class Idempotency < ActiveRecord::Migration[6.1]
  def up
    execute File.read("#{__dir__}/idempotency.sql")
  end
end
