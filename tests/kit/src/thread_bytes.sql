((SELECT CAST(COALESCE(SUM(octet_length(COALESCE(content, ''))), 0) AS BIGINT)
    FROM messages WHERE messages.thread_id = threads.thread_id)
+ (SELECT CAST(COALESCE(SUM(octet_length(parts) + octet_length(COALESCE(provider_state, ''))), 0) AS BIGINT)
    FROM message_steps JOIN messages ON messages.message_id = message_steps.message_id
    WHERE messages.thread_id = threads.thread_id AND message_steps.status <> 'streaming')
+ (SELECT CAST(COALESCE(SUM(octet_length(arguments) + octet_length(COALESCE(model_arguments, ''))
    + octet_length(COALESCE(validated_inputs, '')) + octet_length(COALESCE(preview, ''))
    + octet_length(COALESCE(validated_preview, '')) + octet_length(COALESCE(output, ''))
    + octet_length(COALESCE(result, ''))), 0) AS BIGINT)
    FROM tool_calls WHERE tool_calls.thread_id = threads.thread_id)
+ (SELECT CAST(COALESCE(SUM(octet_length(text)), 0) AS BIGINT)
    FROM sent_answers JOIN tool_calls ON tool_calls.tool_call_id = sent_answers.tool_call_id
    WHERE tool_calls.thread_id = threads.thread_id))
