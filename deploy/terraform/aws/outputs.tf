output "store" {
  description = "The value of BELAY_STORE."
  value       = var.layout == "belay" ? "dynamodb:${var.table_name}" : "dynamodb:${var.table_name}?layout=${var.layout}"
}

output "state_store" {
  description = "The value of BELAY_STATE_STORE; null without a bucket."
  value       = var.bucket_name == null ? null : (var.state_prefix == "" ? "s3://${var.bucket_name}" : "s3://${var.bucket_name}/${var.state_prefix}")
}

output "table_arn" {
  description = "The ARN of the lock table."
  value       = aws_dynamodb_table.locks.arn
}

output "locks_policy_arn" {
  description = "Attach it to every role that acquires locks."
  value       = aws_iam_policy.locks.arn
}

output "state_policy_arn" {
  description = "Attach it to every role that writes deployment state; null without a bucket."
  value       = one(aws_iam_policy.state[*].arn)
}
