from pathlib import Path

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = []
    operations = [migrations.RunSQL(Path(__file__).with_name("idempotency.sql").read_text())]
