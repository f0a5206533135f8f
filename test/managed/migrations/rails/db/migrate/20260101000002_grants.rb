class Grants < ActiveRecord::Migration[6.1]
  def up
    create_table :orders
    execute "SELECT idem_grant('managed_app')"
  end
end
