# The policies that 'belay table describe' prints, and that of the state bucket (docs/stores/s3.md). Nothing is attached:
# attach them to the roles of your jobs.
locals {
  lock_actions = [
    "dynamodb:GetItem",
    "dynamodb:BatchGetItem",
    "dynamodb:UpdateItem",
    "dynamodb:DeleteItem",
    "dynamodb:ConditionCheckItem",
    "dynamodb:Scan",
    "dynamodb:DescribeTable",
  ]
  state_arn = var.bucket_name == null ? null : aws_s3_bucket.state[0].arn
}

resource "aws_iam_policy" "locks" {
  name_prefix = "belay-locks-"
  description = "Acquire, renew and release the locks in ${var.table_name}."
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid      = "BelayLocks"
      Effect   = "Allow"
      Action   = local.lock_actions
      Resource = [aws_dynamodb_table.locks.arn]
    }]
  })
}

resource "aws_iam_policy" "state" {
  count       = length(aws_s3_bucket.state)
  name_prefix = "belay-state-"
  description = "Read and write the deployment state in ${var.bucket_name}."
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid      = "BelayState"
        Effect   = "Allow"
        Action   = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"]
        Resource = [var.state_prefix == "" ? "${local.state_arn}/*" : "${local.state_arn}/${var.state_prefix}/*"]
      },
      {
        Sid      = "BelayStateList"
        Effect   = "Allow"
        Action   = ["s3:ListBucket"]
        Resource = [local.state_arn]
      },
    ]
  })
}
