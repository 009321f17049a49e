locals {
  # The keys of each layout, and the attribute with the time after which DynamoDB may remove an item. A layout without
  # one has no such attribute: DynamoDB must not remove its items.
  layouts = {
    belay       = { keys = ["lock_key"], ttl = "ttl" }
    chatops     = { keys = ["lockKey"], ttl = "ttl" }
    resource    = { keys = ["PK", "SK"], ttl = "TTL" }
    runvoy      = { keys = ["lock_name"], ttl = "expires_at" }
    appregistry = { keys = ["app_name"], ttl = "ttl" }
    deployer    = { keys = ["lockKey"], ttl = "expiresAt" }
    terraform   = { keys = ["LockID"], ttl = null }
    awslabs     = { keys = ["key"], ttl = null }
    dynamolock  = { keys = ["key"], ttl = null }
  }
  layout = local.layouts[var.layout]
}

resource "aws_dynamodb_table" "locks" {
  name                        = var.table_name
  billing_mode                = "PAY_PER_REQUEST"
  hash_key                    = local.layout.keys[0]
  range_key                   = try(local.layout.keys[1], null)
  deletion_protection_enabled = var.deletion_protection
  tags                        = var.tags

  dynamic "attribute" {
    for_each = local.layout.keys
    content {
      name = attribute.value
      type = "S"
    }
  }

  dynamic "ttl" {
    for_each = local.layout.ttl == null ? [] : [local.layout.ttl]
    content {
      attribute_name = ttl.value
      enabled        = true
    }
  }

  point_in_time_recovery {
    enabled = true
  }

  dynamic "server_side_encryption" {
    for_each = var.kms_key_arn == null ? [] : [var.kms_key_arn]
    content {
      enabled     = true
      kms_key_arn = server_side_encryption.value
    }
  }
}
