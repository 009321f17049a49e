resource "aws_s3_bucket" "state" {
  count  = var.bucket_name == null ? 0 : 1
  bucket = var.bucket_name
  tags   = var.tags
}

resource "aws_s3_bucket_versioning" "state" {
  count  = length(aws_s3_bucket.state)
  bucket = aws_s3_bucket.state[0].id

  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "state" {
  count  = length(aws_s3_bucket.state)
  bucket = aws_s3_bucket.state[0].id

  rule {
    bucket_key_enabled = var.kms_key_arn != null

    apply_server_side_encryption_by_default {
      sse_algorithm     = var.kms_key_arn == null ? "AES256" : "aws:kms"
      kms_master_key_id = var.kms_key_arn
    }
  }
}

resource "aws_s3_bucket_public_access_block" "state" {
  count                   = length(aws_s3_bucket.state)
  bucket                  = aws_s3_bucket.state[0].id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_policy" "state" {
  count  = length(aws_s3_bucket.state)
  bucket = aws_s3_bucket.state[0].id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "TlsOnly"
      Effect    = "Deny"
      Principal = "*"
      Action    = "s3:*"
      Resource  = [aws_s3_bucket.state[0].arn, "${aws_s3_bucket.state[0].arn}/*"]
      Condition = { Bool = { "aws:SecureTransport" = "false" } }
    }]
  })
  depends_on = [aws_s3_bucket_public_access_block.state]
}

# belay removes old snapshots itself; the versions that S3 keeps of them end here. A prefix is literal text for S3.
resource "aws_s3_bucket_lifecycle_configuration" "state" {
  count  = length(aws_s3_bucket.state)
  bucket = aws_s3_bucket.state[0].id

  rule {
    id     = "old-versions"
    status = "Enabled"

    filter {
      prefix = var.state_prefix == "" ? "" : "${var.state_prefix}/"
    }

    noncurrent_version_expiration {
      noncurrent_days = var.noncurrent_days
    }

    abort_incomplete_multipart_upload {
      days_after_initiation = 7
    }
  }

  depends_on = [aws_s3_bucket_versioning.state]
}
